/**
 * Imported for its effect by each process of ours that serves requests: V8 makes a young collection on the thread whose heap it is, without
 * helpers. There is a millisecond's work in one, some objects of the requests under way; helpers have to be woken, and where
 * an engine computes on every core, waited for. With them such a pause took 1.5 to 4 ms on two cores, and takes 0.8
 * (a thousand requests a second; longer where the machine's own host is busy).
 */
import { setFlagsFromString } from 'node:v8';

// Read at each collection, so it takes effect after the start too.
setFlagsFromString('--no-parallel-scavenge');
