"""A node for the lab: runs the containers of bound pods as processes of this machine.

    client      asynchronous requests, and watches that list again after any error
    runner      the node itself: registers, binds pods, starts and ends their runners
    pod         one pod: volumes, init containers, containers, deletion
    container   one container: start, probes, restarts with back-off, termination message
    launcher    what a container's process executes first: namespaces and mounts
    plan        what a pod's manifest means on this machine (pure)
    status      what the API server is told about a pod (pure)
    volumes     folders of a pod's volumes
    claims      volumes for PersistentVolumeClaims of our StorageClasses
    environment variables of containers, with what they refer to
    images      what the project's own images start
    hosts       DNS names of pods and services, as files that stand in for /etc/hosts
    api_service the API server at the address that pods know
    kubelet     logs and exec, as the API server asks a kubelet for them

A container has mount, PID and UTS namespaces of its own, and the machine's network: every pod has
a loopback address, so servers have to listen on their pod's address alone. Images are not pulled:
commands are looked up on this machine, and containers run as the user that runs the node (root).
"""
