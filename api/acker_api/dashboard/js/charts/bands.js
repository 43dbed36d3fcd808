/** Outages in a chart: red bands under its lines. */

import { colour } from "../core/theme.js";

/**
 * @param {any} plot of uPlot
 * @param {import("../data/past.js").Band[]} bands
 */
export function drawBands({ ctx, bbox, scales, valToPos }, bands) {
  const ratio = window.devicePixelRatio || 1;
  const { min, max } = scales.x;
  ctx.save();
  for (const { from, to } of bands) {
    const [begin, end] = [Math.max(from / 1000, min), Math.min(to / 1000, max)];
    if (begin >= end) continue;
    const x = valToPos(begin, "x", true);
    const width = Math.max(2 * ratio, valToPos(end, "x", true) - x);
    ctx.fillStyle = colour("--over-soft");
    ctx.fillRect(x, bbox.top, width, bbox.height);
    // The bar is seen above filled layers, too.
    ctx.fillStyle = colour("--over");
    ctx.fillRect(x, bbox.top - 4 * ratio, width, 3 * ratio);
  }
  ctx.restore();
}
