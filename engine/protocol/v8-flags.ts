/**
 * Imported for its effect by each of our processes that serves requests: V8 runs young collections on the main thread
 * only, without helper threads. There is little work in one, and waking helpers costs more, especially while an engine
 * computes on every core.
 */
import { setFlagsFromString } from 'node:v8';

// V8 reads it at each collection, so it takes effect after the start too.
setFlagsFromString('--no-parallel-scavenge');
