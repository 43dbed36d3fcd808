/*
 * The messages of one tuple tree, drawn once: all trees of up to MESSAGES messages.
 *
 * Message m is caused by the messages in causes[m], or by the source if that is empty. A message
 * with several causes is a join. Each link from a cause to a message has an edge id of its own.
 * A set of edge ids is a bitmap, one bit for each link. XOR of bitmaps is exact: it is zero only
 * if each id is in it an even number of times.
 *
 * Gives n, causes[], by[], row[] (delta of a processed message), first (delta of the TRACK),
 * own[] (the id of a message alone), and emit(), which updates exists.
 */
#ifndef MESSAGES
#define MESSAGES 4
#endif
#ifndef LEAST
#define LEAST 0
#endif
#define BIT(k) (1 << (k))

hidden byte i, j, links, one;  /* scratch, of one step only */

byte n;                  /* messages of this tree */
byte causes[MESSAGES];   /* the messages that cause it, as a bitmap; 0: the source */
short own[MESSAGES];     /* its id: the edge ids of its own links */
short row[MESSAGES];     /* its row: its id, and the edge ids of all messages it causes */
short first;             /* the edge ids of the first messages */
#ifdef BOLTS
byte by[MESSAGES];       /* the bolt that processes it, from 1 */
#endif

byte exists;             /* messages that were emitted */
byte emitted;            /* messages whose children were emitted */

/* A message exists when all its causes have emitted it. */
inline emit(m) {
  emitted = emitted | BIT(m);
  i = 0;
  do
  :: i < n ->
     if
     :: causes[i] && (causes[i] & ~emitted) == 0 -> exists = exists | BIT(i)
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0;
  printf("EV emit exists=%d\n", exists)
}

/*
 * Draw a tree. Messages are numbered so that causes[] never decreases, which some numbering of
 * each tree does: of the messages whose causes have numbers, take the one with the least set of
 * causes, and of those the one of the first bolt. Message 0 belongs to bolt 1, as the bolts are
 * alike.
 */
inline draw_topology() {
  n = 0;
  do
  :: n < MESSAGES ->
     causes[n] = (n -> causes[n - 1] : 0);
     do
     :: n && causes[n] < BIT(n) - 1 -> causes[n]++
     :: break
     od;
#ifdef BOLTS
     if
     :: !(n && causes[n] == causes[n - 1] && by[n - 1] == 2) -> by[n] = 1
     :: n && BOLTS > 1 -> by[n] = 2
     fi;
#endif
     n++
  :: n >= LEAST -> break
  od;
  links = 0;
  d_step {
    i = 0;
    do
    :: i < n ->
       one = links;
       if
       :: causes[i] == 0 ->
          own[i] = BIT(links); first = first ^ BIT(links); links++;
          exists = exists | BIT(i)
       :: else ->
          j = 0;
          do
          :: j < i ->
             if
             :: causes[i] & BIT(j) ->
                /* Rule 2: a message of several causes has one edge id for each of them. */
#ifdef BREAK_SHARED_IDS
                own[i] = BIT(one); row[j] = row[j] ^ BIT(one);
#else
                own[i] = own[i] ^ BIT(links); row[j] = row[j] ^ BIT(links);
#endif
                links++
             :: else
             fi;
             j++
          :: else -> break
          od
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < n -> row[i] = row[i] ^ own[i]; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < n ->
#ifdef BOLTS
       printf("EV message m=%d causes=%d bolt=%d\n", i, causes[i], by[i]);
#else
       printf("EV message m=%d causes=%d\n", i, causes[i]);
#endif
       i++
    :: else -> break
    od;
    printf("EV emit exists=%d\n", exists);
    i = 0
  }
}
