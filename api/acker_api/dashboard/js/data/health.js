/** How healthy the service finds a namespace, as the page shows it. It judges nothing itself. Pure. */

/** @typedef {import("./types.js").Status} Status */
/** @typedef {"ok" | "high" | "over"} Level */

/**
 * @typedef {object} Finding
 * @property {string} key what was looked at, however its figures change
 * @property {Level} level
 * @property {string} title what is wrong
 * @property {string} detail with figures
 * @property {string} fix what to do
 * @property {{text: string, tab: string}} [link] where to look
 * @property {number} [since] Redis's clock, ms, where the status tells
 */

/** @type {Record<string, Level>} */
const LEVELS = { error: "over", warning: "high" };
const OLDEST = { text: "Look at the oldest trees", tab: "trees" };
/** @type {Record<string, {text: string, tab: string}>} */
const LINKS = { "high-water": OLDEST, acks: OLDEST, oldest: OLDEST };

/** @type {Record<string, {level: Level, words: string}>} */
const ROTATORS = {
  on_time: { level: "ok", words: "On time" },
  late: { level: "high", words: "Late" },
  away: { level: "over", words: "Away" },
  unknown: { level: "ok", words: "No tick yet" },
};

/**
 * What is wrong, the worst first; nothing: it is healthy.
 *
 * @param {Status} status
 * @returns {Finding[]}
 */
export function findings(status) {
  const now = status.shards?.[0]?.now_ms;
  return status.findings.map(({ id, level, headline, detail, fix }) => ({
    key: id, level: LEVELS[level] || "high", title: headline, detail, fix, link: LINKS[id],
    since: id === "rotator" && status.lag_ms && now ? now - status.lag_ms : undefined,
  }));
}

/**
 * How bad one thing is.
 *
 * @param {Status} status
 * @param {string} id of the finding
 * @returns {Level}
 */
export function levelOf(status, id) {
  const found = status.findings.find((each) => each.id === id);
  return found ? LEVELS[found.level] || "high" : "ok";
}

/**
 * How the rotator does, of a namespace or of a shard.
 *
 * @param {{rotator: string}} told
 */
export function rotator({ rotator: state }) {
  return ROTATORS[state] || ROTATORS.unknown;
}

/**
 * The worst of some findings.
 *
 * @param {Finding[]} found
 * @returns {Level}
 */
export function worst(found) {
  if (found.some((each) => each.level === "over")) return "over";
  return found.length ? "high" : "ok";
}

/**
 * A sentence in parts: what is to be typed, and what is said about it.
 *
 * @param {string} fix
 * @returns {{text: string, typed: boolean}[]}
 */
export function inParts(fix) {
  return fix.split(/((?:acker-redis|redis-cli) [^;]+)/).filter(Boolean).map(
    (text) => ({ text, typed: /^(acker-redis|redis-cli) /.test(text) }));
}

/**
 * How much of what may wait for a source does, on its fullest shard: each shard has its share, and
 * refuses what is tracked when that is full.
 *
 * @param {Pick<Status, "backlog" | "backlog_ratio" | "config">} status
 * @param {string} task
 */
export function fullness({ backlog: waiting, backlog_ratio: ratios, config }, task) {
  return ratios?.[task] ?? waiting[task] / config.outcomes_limit;
}
