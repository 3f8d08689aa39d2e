"""What slaves know better of consumer offsets, given to a master before it starts.

``merge`` decides, ``master_store`` and ``offset_file`` read and write the master's disk, ``asking``
asks the slaves, ``offline`` has the order of all that, ``command`` the command line. ``restoring``
and ``online`` give a master that runs kept offsets. ``starts`` and ``sidecar`` carry at each start
of a broker in a pod or of the local runtime.
"""
