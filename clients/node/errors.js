// The error of this package. Its code is one of the scripts' codes (lua/README.md, Errors), or one of
// REFUSED, LANE, UNAVAILABLE, LATE, FULL, CLOSED and REDIS.

/** Class of all errors of this package; `code` identifies the kind. */
export class AckerError extends Error {
  constructor(code, words, options) {
    super(words, options);
    this.name = 'AckerError';
    this.code = code;
    this.mayPass = false; // whether Redis refused the call for a cause that may pass, such as a full memory
  }
}

/** Throw the error for an invalid row, text or setting; nothing was sent, and the batch is unchanged. */
export function refuse(words) {
  throw new AckerError('REFUSED', words);
}

// From acker_redis/protocol/codes.py, by python -m proof.spec
// Transient states: start-up, failover, a migrating slot, a long script, a full disk.
const PASSING = new RegExp('^(ClusterAllFailed|ERR max number of clients reached|' +
  'MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF)\\b');
// Refusals that may pass: memory is freed, a password or a right changes. Nothing was changed.
const PATIENT = /^(OOM|NOAUTH|WRONGPASS|NOPERM)\b/;
// Only a new connection can succeed: to another master, or with another password.
const DEMOTED = /^(LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS)\b/;

// The right to a single command of a script: commands before it may have run.
const NO_RIGHT_IN_SCRIPT = /The user executing the script can't |ACL failure in script: /;
// Prefix of Redis 6.2 before the error of a command inside a script.
const IN_SCRIPT = /^(?:ERR )?Error running script [\s\S]*?: -?(?=[A-Z]+ )/;

const wordsOf = (error) => String(error?.message ?? error).replace(IN_SCRIPT, '');

/** Return whether only a new connection can succeed: to another master, or with another password. */
export function isDemoted(error) {
  return DEMOTED.test(wordsOf(error));
}

/** Return the AckerError for an error that a Redis client has thrown. */
export function translate(error) {
  if (error instanceof AckerError) return error;
  const words = wordsOf(error);
  const ours = /^ACKER ([A-Z]+) ([\s\S]*)/.exec(words);
  if (ours) return new AckerError(ours[1], ours[2]);
  const replied =
    error?.name === 'ReplyError' || /^(SimpleError|BlobError|ErrorReply)$/.test(error?.constructor?.name);
  if (replied && PATIENT.test(words)) {
    const full = 'Redis is at maxmemory and refused the call; nothing was changed. Raise maxmemory, lower ' +
      'high_water, or let the sources take their outcomes';
    const refused = new AckerError('REDIS', words.startsWith('OOM') ? full : `Redis refused the call: ${words}`,
      { cause: error });
    refused.mayPass = !NO_RIGHT_IN_SCRIPT.test(words);
    refused.full = words.startsWith('OOM');
    return refused;
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
