"""Comparison reports from finished runs: Markdown, one offline page, CSV tables, SVG figures."""

from oar_bench.reporting.report import ReportPaths, write_report

__all__ = ["ReportPaths", "write_report"]
