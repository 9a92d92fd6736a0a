#!/bin/sh
# Prints how many processes share the test files: tests wait more than they compute, and each process needs about 4 GB.
# With "unit", how many share those that need no server: some of them wait, so there is a process more than processors.
set -eu
if [ "${1:-}" = unit ]; then
  processors=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
  if [ "$processors" -gt 7 ]; then echo 8; else echo $((processors + 1)); fi
  exit
fi
kilobytes=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null || true)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
case "$limit" in
'' | max | *[!0-9]*) ;;
*) if [ $((limit / 1024)) -lt "${kilobytes:-0}" ]; then kilobytes=$((limit / 1024)); fi ;;
esac
if [ "${kilobytes:-0}" -ge 15000000 ]; then echo 3; else echo 2; fi
