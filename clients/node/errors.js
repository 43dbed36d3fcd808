// Every error of this package. A code is that of the scripts (lua/README.md, Errors), or one of
// REFUSED, LANE, UNAVAILABLE, LATE, FULL, CLOSED and REDIS.

/** Base of all errors; `code` says which. */
export class AckerError extends Error {
  constructor(code, words, options) {
    super(words, options);
    this.name = 'AckerError';
    this.code = code;
  }
}

/** A row, text or setting that cannot be; nothing was sent, and the batch is as it was. */
export function refuse(words) {
  throw new AckerError('REFUSED', words);
}

const ADVICE = {
  NAMESPACE: '; create it (acker-redis create), or finish dropping it (acker-redis drop)',
  SCHEMA: '; use the version of acker-redis that wrote it',
  SHARD: '; the namespace was moved or created anew, open it again',
  CONFLICT:
    '; something in it changes from run to run, or the namespace was moved since it was run first',
};
// States that pass: start-up, failover, a slot that moves, a long script.
const PASSING =
  /^(LOADING|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|BUSY|NOREPLICAS|MOVED|ASK|ClusterAllFailed)/;
// What Redis 6.2 puts before an error that a command in a script has met.
const IN_SCRIPT = /^(?:ERR )?Error running script [\s\S]*?: -?(?=[A-Z]+ )/;

const wordsOf = (error) => String(error?.message ?? error).replace(IN_SCRIPT, '');

/** Whether a server replied so as a master does that was replaced, or may be soon: connect again. */
export function isDemoted(error) {
  return /^(READONLY|MASTERDOWN|NOREPLICAS|LOADING)\b/.test(wordsOf(error));
}

/** AckerError for what a Redis client has thrown. */
export function translate(error) {
  if (error instanceof AckerError) return error;
  const words = wordsOf(error);
  const ours = /^ACKER ([A-Z]+) ([\s\S]*)/.exec(words);
  if (ours) return new AckerError(ours[1], ours[2] + (ADVICE[ours[1]] ?? ''));
  const replied =
    error?.name === 'ReplyError' || /^(SimpleError|BlobError|ErrorReply)$/.test(error?.constructor?.name);
  if (replied && words.startsWith('OOM')) {
    return new AckerError(
      'REDIS',
      'Redis is at maxmemory and refused the call; nothing was changed. Raise maxmemory, lower ' +
        'high_water, or let the sources take their outcomes',
    );
  }
  if (error instanceof TypeError || error instanceof RangeError || (replied && !PASSING.test(words))) {
    return new AckerError('REDIS', `Redis refused the call: ${words}`, { cause: error });
  }
  return new AckerError(
    'UNAVAILABLE',
    `Redis did not answer: ${words.replace(/\.$/, '')}; is it running and reachable?`,
    { cause: error },
  );
}
