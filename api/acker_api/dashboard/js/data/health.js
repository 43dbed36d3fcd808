/** The findings of the service about a namespace, as the page shows them. It judges nothing itself. Pure. */

/** @typedef {import("./types.js").Status} Status */
/** @typedef {"ok" | "high" | "over"} Level */

/**
 * @typedef {object} Finding
 * @property {string} key the check; it does not change with the figures
 * @property {Level} level
 * @property {string} title the problem
 * @property {string} detail with figures
 * @property {string} fix what to do
 * @property {{text: string, tab: string}} [link] to more details
 * @property {number} [since] by Redis's clock, in ms, if the status has it
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
  away: { level: "over", words: "Missing" },
  unknown: { level: "ok", words: "No tick yet" },
};

/**
 * Return the problems, the worst first; none if the namespace is healthy.
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
 * Return the level of one finding.
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
 * Return the state of the rotator, of a namespace or of a shard.
 *
 * @param {{rotator: string}} told
 */
export function rotator({ rotator: state }) {
  return ROTATORS[state] || ROTATORS.unknown;
}

/**
 * Return the worst level of some findings.
 *
 * @param {Finding[]} found
 * @returns {Level}
 */
export function worst(found) {
  if (found.some((each) => each.level === "over")) return "over";
  return found.length ? "high" : "ok";
}

/**
 * Split a sentence into commands to type, and the text around them.
 *
 * @param {string} fix
 * @returns {{text: string, typed: boolean}[]}
 */
export function inParts(fix) {
  return fix.split(/((?:acker-redis|redis-cli) [^;]+)/).filter(Boolean).map(
    (text) => ({ text, typed: /^(acker-redis|redis-cli) /.test(text) }));
}

/**
 * Return the ratio of untaken verdicts of a source to its limit, on the fullest shard. Each shard has a
 * share of the limit, and refuses to track at its share.
 *
 * @param {Pick<Status, "backlog" | "backlog_ratio" | "config">} status
 * @param {string} source
 */
export function fullness({ backlog: waiting, backlog_ratio: ratios, config }, source) {
  return ratios?.[source] ?? waiting[source] / config.outcomes_limit;
}
