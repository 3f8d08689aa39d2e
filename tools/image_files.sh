#!/bin/sh
# Make /opt/failback of one image: image_files.sh EXTRAS. Runs in a build stage of the Dockerfile.
#
# A virtual environment without pip, with the versions of constraints.txt, byte-compiled (the root
# file system is read-only later) by content and not by time, so that equal inputs give equal bytes.
set -eu
extras=$1
target=/opt/failback

python3 -m venv --without-pip "$target"
/opt/pip/bin/pip --python "$target/bin/python" install --quiet --no-compile \
    --constraint constraints.txt "$(echo /wheels/failback-*.whl)[$extras]"
rm -f "$target"/bin/[Aa]ctivate*

# What packages bring along for their own tests and builds is not needed to run them.
site=$(echo "$target"/lib/python3*/site-packages)
for package in numpy pandas pyarrow; do
    [ ! -d "$site/$package" ] || find "$site/$package" -type d -name tests -prune -exec rm -rf {} +
done
rm -rf "$site"/pyarrow/*_flight* "$site"/pyarrow/*_substrait* "$site/plotly/labextension"
rm -rf "$site/pyarrow/include" "$site/pyarrow/src" "$site/numpy/_core/include" "$site/numpy/_core/lib"
find "$site" -name '*.a' -delete

# Compiled for this Python, where the stage was given them.
[ ! -d /kernels ] || install -m 644 /kernels/_native*.so "$site/failback/broker/"

# What a SparkApplication names as its main file.
printf '%s\n' 'from failback.cli.__main__ import main' 'raise SystemExit(main())' > "$target/bin/spark_main.py"

"$target/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$site"
find "$target" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
