"""Tests that judge the judge: ``python3 -m unittest discover -s scripts/interop -t scripts/interop``."""
