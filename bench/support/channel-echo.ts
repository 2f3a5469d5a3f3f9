/** Answers each message on Node’s own channel with itself, and ends with its parent: what link.bench.ts compares with. */
process.on('message', (message) => {
  process.send?.(message);
});
process.once('disconnect', () => process.exit(0));
