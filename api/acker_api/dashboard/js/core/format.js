/** Numbers, ages and times in readable form. Pure. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const small = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** @param {number} value 1234567 -> "1,234,567" */
export function count(value) {
  return whole.format(value);
}

/** @param {number} value 1234567 -> "1.23 M", 12000 -> "12 k", 950 -> "950" */
export function compact(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    // 999,500 and more would be rounded to 1000 of the smaller unit.
    if (size >= unit * 0.9995) return `${digits(value / unit)} ${letter}`;
  }
  return small.format(value);
}

/** @param {number} value in full if it fits a tile: 99,999 -> "99,999", 123456 -> "123 k" */
export function figure(value) {
  return Math.abs(value) < 100_000 ? count(value) : compact(value);
}

/** @param {number} perSecond three digits: "12.3", "829", "1.23 k" */
export function rate(perSecond) {
  if (perSecond > 0 && perSecond < 0.1) return "< 0.1";
  return perSecond >= 99.95 && perSecond < 999.5 ? whole.format(perSecond) : compact(perSecond);
}

/** @param {number} part 0.1234 -> "12.3 %" */
export function percent(part) {
  const value = part * 100;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  return `${value < 99.95 ? small.format(value) : whole.format(value)} %`;
}

/** @param {number} ms 93784000 -> "1 d 2 h"; two units at most */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return pair(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return pair(hours, "h", minutes % 60, "min");
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** @param {number} ms 93784000 -> "1 d 2 h ago"; an age below two seconds changes too fast to be read */
export function ago(ms) {
  return ms < 2000 ? "just now" : `${duration(ms)} ago`;
}

/** @param {number} ms in one unit, two digits or three: "512 ms", "4.1 s", "66 s", "2.2 min", "1.2 h" */
export function about(ms) {
  const [value, unit] = ms < 999.5 ? [ms, "ms"] : ms < 99_500 ? [ms / 1000, "s"]
    : ms < 5_970_000 ? [ms / 60_000, "min"] : ms < 172_800_000 ? [ms / 3_600_000, "h"] : [ms / 86_400_000, "d"];
  return `${value < 9.95 ? small.format(value) : whole.format(value)} ${unit}`;
}

/** @param {number} ms a point in time: "14:03:09", with the day if it is not today */
export function moment(ms) {
  const at = new Date(ms);
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

/** @param {number} ms a point in time with its date: "23 Nov 2026 14:03:09" */
export function date(ms) {
  const at = new Date(ms);
  return `${day.format(at)} ${at.getFullYear()} ${clock.format(at)}`;
}

/**
 * @param {number} amount
 * @param {string} one
 * @param {string} [many]
 */
export function plural(amount, one, many = `${one}s`) {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

function pair(large, largeUnit, rest, restUnit) {
  return rest ? `${large} ${largeUnit} ${rest} ${restUnit}` : `${large} ${largeUnit}`;
}

function digits(value) {
  const places = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return String(Number(value.toFixed(places)));
}
