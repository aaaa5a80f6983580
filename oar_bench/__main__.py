"""`python -m oar_bench`, the same as `oar-bench`."""

from oar_bench.cli import main

if __name__ == "__main__":
    main()
