#!/bin/sh
# Remove from the base image what no program of ours opens. Runs in a build stage of the Dockerfile.
#
# The database of packages stays: scanners read it.
set -eu
cd /
rm -rf usr/share/doc usr/share/man usr/share/info usr/share/locale usr/share/i18n usr/share/lintian \
    usr/share/bug usr/share/python-wheels usr/share/pixmaps usr/share/bash-completion usr/include \
    var/cache/* var/log/* var/lib/apt/lists/* var/lib/dpkg/info tmp/*
# Conversions of encodings, and Perl, are for packages' own scripts.
rm -rf usr/lib/*/gconv usr/bin/perl* usr/lib/*/perl* usr/share/perl*
# Package managers: a read-only root takes no packages.
rm -rf usr/bin/apt* usr/lib/apt usr/lib/*/libapt-* etc/apt usr/share/gnupg usr/bin/gpg*
for stdlib in usr/lib/python3.* usr/local/lib/python3.*; do
    [ ! -d "$stdlib" ] || rm -rf "$stdlib"/ensurepip "$stdlib"/idlelib "$stdlib"/lib2to3 "$stdlib"/tkinter \
        "$stdlib"/turtledemo "$stdlib"/test "$stdlib"/pydoc_data "$stdlib"/config-3.*
    [ ! -d "$stdlib/site-packages" ] || rm -rf "$stdlib"/site-packages/*
done
