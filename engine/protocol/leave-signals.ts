/**
 * Each child process imports this file first, for its effect: the process ignores the signals that Ctrl-C, a closed terminal, a reload
 * and some service managers send to the whole process group, also while it evaluates its other modules. The parent decides what such a
 * signal means, and ends its children when it is done.
 */
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined);
