/**
 * Imported for its effect by each process of ours that serves requests: V8 makes a young collection on the thread whose heap
 * it is, without helpers. There is little work in one, some objects of the requests under way; helpers have to be woken for
 * it, and where an engine computes on every core, waited for.
 */
import { setFlagsFromString } from 'node:v8';

// Read at each collection, so it takes effect after the start too.
setFlagsFromString('--no-parallel-scavenge');
