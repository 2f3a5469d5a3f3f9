/** Answers each message with itself, and ends with its parent: what a round trip between two processes takes at least. */
process.on('message', (message) => {
  process.send?.(message);
});
process.once('disconnect', () => process.exit(0));
