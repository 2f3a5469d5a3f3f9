/**
 * The code of the functions that check values against our schemas, as text, which a process compiles when it uses it. The build writes
 * this module anew (sidecar/build/), and beside it a file with the code of all, written-code.txt. The module reads that file as bytes
 * when it is loaded: 3 MB of text among a program's own code took a tenth of its start, since V8 scans and copies it.
 */

/** By its name: returns the body of a function of `module`, `hasAtMost` and `formats` that sets `module.exports`. None is written here. */
export const WRITTEN: Readonly<Record<string, () => string>> = {};
