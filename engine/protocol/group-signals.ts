/**
 * Imported for its effect by each child process: Ctrl-C, a closed terminal, a reload and some service managers signal the
 * whole process group. What the signal means is the parent's to decide, and it ends its children when it is done.
 */
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined);
