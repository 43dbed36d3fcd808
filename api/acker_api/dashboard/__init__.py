"""The dashboard: pages, styles and scripts without a build step, and what serves them."""
