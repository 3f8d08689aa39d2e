#!/bin/sh
# Make /opt/failback of one image: image_files.sh TARGET. Runs in a build stage of the Dockerfile.
#
# A virtual environment without pip, with the packages of requirements/TARGET.txt by their hashes,
# byte-compiled (the root file system is read-only later) by content and not by time, so that equal
# inputs give equal bytes.
set -eu
requirements=requirements/$1.txt
target=/opt/failback

python3 -m venv --without-pip "$target"
install="/opt/pip/bin/pip --python $target/bin/python install --quiet --no-compile"
$install --require-hashes --requirement "$requirements"
$install --no-deps /wheels/failback-*.whl
# It is for `chaos discover`; a scanner would take it for a package.
rm -rf "$target"/lib/python3*/site-packages/failback_chaos.egg-info
# The packages, for scanners: CycloneDX.
/opt/pip/bin/cyclonedx-py environment --output-reproducible --output-file "$target/sbom.cdx.json" "$target/bin/python"
rm -f "$target"/bin/[Aa]ctivate*

# What packages bring along for their own tests and builds is not needed to run them.
site=$(echo "$target"/lib/python3*/site-packages)
for package in numpy pandas pyarrow; do
    [ ! -d "$site/$package" ] || find "$site/$package" -type d -name tests -prune -exec rm -rf {} +
done
rm -rf "$site"/pyarrow/*_flight* "$site"/pyarrow/_substrait* "$site"/pyarrow/*cpp_tests* "$site"/pyarrow/include "$site"/pyarrow/src \
    "$site"/numpy/_core/include "$site"/numpy/_core/lib "$site"/numpy/f2py "$site"/numpy/distutils
find "$site" \( -name '*.a' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.c' -o -name '*.h' \) -delete
# Not those in folders of bundled libraries: the tool that renamed them laid them out in its own way.
find "$site" -name '*.so*' -type f ! -path '*.libs/*' -exec strip --strip-unneeded {} +

# Colours for tracebacks, of Python alone.
[ ! -d "$site/pygments/lexers" ] || find "$site/pygments/lexers" -name '*.py' ! -name '__init__.py' \
    ! -name _mapping.py ! -name python.py ! -name special.py -delete

# For notebooks; and the whole of Plotly's script, where the wheel has the smaller one.
rm -rf "$site"/plotly/labextension "$site"/plotly/package_data/widgetbundle.js
[ ! -e "$site/failback/analytics/report/page/plotly/plotly-basic.min.js" ] ||
    rm -f "$site"/plotly/package_data/plotly.min.js

# The shell of the CEL library: operator/schema/rules.py loads the compiled module alone.
rm -rf "$site/prompt_toolkit" "$site/wcwidth"

# A second client, for event loops, that nothing here imports.
rm -rf "$site/kubernetes/aio"

# Of Spark: a shell, examples, machine learning.
rm -rf "$site"/pyspark/examples "$site"/pyspark/jars/connect-repl
for jar in breeze spire cats-kernel algebra arpack blas lapack spark-mllib spark-graphx spark-repl \
    scala-compiler; do
    rm -f "$site"/pyspark/jars/"$jar"*
done
# The store of streams' state comes with libraries for fourteen systems; images are of Linux with glibc.
"$target/bin/python" - "$site"/pyspark/jars/rocksdbjni-*.jar << 'END'
import pathlib, sys, zipfile
KEPT = ("linux64.so", "linux-aarch64.so")
for path in filter(pathlib.Path.exists, map(pathlib.Path, sys.argv[1:])):
    smaller = path.with_suffix(".new")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if not entry.filename.startswith("librocksdbjni-") or entry.filename.endswith(KEPT):
                new.writestr(entry, old.read(entry))
    smaller.replace(path)
END

# Compiled for this Python, where the stage was given them.
[ ! -d /kernels ] || install -m 644 /kernels/_native*.so "$site/failback/broker/"

# What a SparkApplication and spark-submit name as the main file.
[ ! -d "$site/pyspark" ] || install -m 644 spark_main.py "$target/bin/"

# Byte code of ours and of Spark, whose scripts start programs by their path, lies beside the source;
# of all other packages it takes the source's place.
compile="$target/bin/python -m compileall -q --invalidation-mode unchecked-hash"
$compile "$site/failback"
[ ! -d "$site/pyspark" ] || $compile "$site/pyspark"
$compile -b -x '/site-packages/(failback|pyspark)/' "$site"
find "$site" -mindepth 1 -maxdepth 1 ! -name failback ! -name pyspark -exec find {} -name '*.py' -delete \;

# Wheels carry a library three times where they mean two links to it.
for library in "$site"/pyarrow/libarrow_python.so*; do
    [ "$library" = "$site/pyarrow/libarrow_python.so" ] || [ ! -e "$library" ] || ln -sf libarrow_python.so "$library"
done
find "$target" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
