"""The report on a storage: one HTML page without references to other files, and its charts as SVG files."""
