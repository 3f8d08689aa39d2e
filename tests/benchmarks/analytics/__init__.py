"""What the benchmarks of the analytics share: synthetic runs, the race of engines, meters."""
