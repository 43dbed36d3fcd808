/**
 * Answers of the API, as far as the page reads them. Ids are text, because numbers beyond 2^53 are rounded.
 *
 * @typedef {"on_time" | "late" | "away" | "unknown"} Rotation
 * @typedef {"ok" | "high" | "over"} HighWater
 *
 * @typedef {object} Shard
 * @property {number} shard
 * @property {number[]} pending per bucket, the newest first
 * @property {number[]} in_blocks
 * @property {number} expiring
 * @property {number} now_ms
 * @property {number} ticked_ms
 * @property {Rotation} rotator
 * @property {number} lag_ms
 * @property {number} late_ms
 *
 * @typedef {object} Config
 * @property {number} shards
 * @property {number} buckets
 * @property {number} tick_ms
 * @property {number} high_water
 * @property {"never" | "update"} refresh
 * @property {number} [deadline_ms] with "update": the age at which a tree expires
 * @property {string[]} [edges] names of the ways on which messages go
 * @property {number} outcomes_limit
 * @property {boolean} publish
 * @property {number} [slo_target] percentage of trees that must complete in time
 * @property {number} [slo_ms] time in which a tree must complete to be good; 0: before it expires
 * @property {number} timeout_ms
 * @property {number} [lifetime_ms] maximum age of a tree
 *
 * @typedef {object} Block
 * @property {string} block
 * @property {number} slots
 * @property {number[]} open
 * @property {number[]} failed
 * @property {number[]} [absent] slots that hold no tree
 *
 * @typedef {object} Tree
 * @property {string} anchor
 * @property {string | null} [checksum] XOR of the ids of its outstanding messages, 16 hex digits; only for operators
 * @property {string[]} [edges] those on which an odd number of its messages is outstanding
 * @property {string} source
 * @property {string} source_id
 * @property {"open" | "failed" | "complete" | "untracked"} state
 * @property {string} why
 * @property {number} age_ms
 * @property {number} [idle_ms] since its last row
 * @property {number} bucket
 * @property {Block | null} block
 *
 * @typedef {object} BlockEntry
 * @property {string} block
 * @property {string} first_anchor
 * @property {number} slots
 * @property {boolean} [partial] some slots hold no tree
 * @property {string} source
 * @property {string} label
 * @property {number} age_ms
 * @property {number} bucket
 *
 * @typedef {object} Outcome
 * @property {"ack" | "nack" | "touch"} verdict
 * @property {string} reason
 * @property {string} source_id
 * @property {number | null} slot
 * @property {string} anchor
 * @property {number} age_ms
 * @property {string} why
 * @property {"" | "idle" | "deadline"} [cause] of an expired tree
 * @property {string | null} [residual] of an expired tree: XOR of the ids of all messages that are
 *   unaccounted for; only for operators
 * @property {string[]} [edges] of an expired tree: those with an odd number of these messages
 * @property {number | null} [idle_ms] of an expired tree: from its last row to the verdict
 * @property {number} at_ms
 * @property {string} source
 * @property {string} [entry]
 * @property {number} [count] number of trees in a block; 1 otherwise
 *
 * @typedef {object} BlockVerdict the verdicts on a whole block, as events have them
 * @property {"ack" | "nack" | "touch" | "mixed"} verdict
 * @property {string} reason
 * @property {string} block
 * @property {string} label
 * @property {string} source
 * @property {number} count
 * @property {number} acked
 * @property {number} nacked
 * @property {number} age_ms
 * @property {"" | "idle" | "deadline"} [cause]
 * @property {Record<string, number>} [edges] nacked trees by edge
 * @property {number | null} [idle_ms]
 * @property {number} at_ms
 *
 * @typedef {object} Waits where pending trees wait, from a sample
 * @property {number} sampled
 * @property {number} pending
 * @property {{edge: string, trees: number, idle_ms: number, max_idle_ms: number}[]} edges
 * @property {Record<string, number>} [expired] expired trees by edge since then
 * @property {number} [expired_since_ms]
 *
 * @typedef {object} Finding
 * @property {string} id the check
 * @property {"warning" | "error"} level
 * @property {string} headline the problem, in a few words
 * @property {string} detail
 * @property {string} fix
 *
 * @typedef {object} Health a namespace of the overview
 * @property {string} name
 * @property {boolean} up it can be read
 * @property {"error" | "warning" | "ok"} level
 * @property {any} [problem] why it cannot be read
 * @property {Finding[]} findings
 * @property {number} open
 * @property {number} pending
 * @property {number} untaken
 * @property {number | null} oldest_ms
 * @property {Rotation} rotator
 * @property {HighWater} high_water
 * @property {number} high_water_ratio
 * @property {Record<string, number>} counters
 * @property {number} now_ms
 *
 * @typedef {object} SourceReport what a source has said of one of its edges
 * @property {string} source
 * @property {string} edge "" for records without one
 * @property {number | null} window records that may be in flight
 * @property {number} in_flight
 * @property {number} waiting
 * @property {number | null} down_ms since when no answer comes; null: answers come
 * @property {number} age_ms
 *
 * @typedef {object} Status
 * @property {string} namespace
 * @property {Finding[]} findings the problems, errors first
 * @property {Rotation} rotator
 * @property {number} open trees without a verdict
 * @property {number} pending places in the buckets
 * @property {number[]} pending_by_bucket
 * @property {number} in_blocks
 * @property {number} expiring
 * @property {HighWater} high_water
 * @property {number} high_water_ratio
 * @property {number} lag_ms
 * @property {number} late_ms
 * @property {number} ticks of the shard with the most
 * @property {Record<string, number>} counters
 * @property {Record<string, number>} [odd] expired trees by edge; "" for no named edge
 * @property {Record<string, number>} backlog
 * @property {Record<string, number>} [backlog_ratio] of the fullest shard, by its share of the limit
 * @property {Config} config
 * @property {Shard[]} shards
 * @property {string | number | null} [resharding_to]
 * @property {{upper_ms: number[], counts: number[], sum_ms: number} | null} [latency] of all trees that
 *   were ever acked, by powers of two
 * @property {{over_ms: number, ended: number, nacked: number} | null} [recent] trees that ended in some 15 minutes
 * @property {SourceReport[]} [reports] of sources, within three minutes
 * @property {(Record<string, number> & {over_ms: number}) | null} [rates] per second, by counter
 * @property {{exact: boolean, tree: Tree} | null} [oldest]
 */

export {};
