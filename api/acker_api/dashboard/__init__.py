"""The dashboard: pages, styles and scripts without a build step, and the code that sends them."""
