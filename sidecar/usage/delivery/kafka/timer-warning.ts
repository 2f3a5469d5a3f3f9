/**
 * KafkaJS 2.2.4 sets a timer with a negative delay whenever no request waits, which Node 24 and newer print a warning of, once a
 * process. The timer is right: it runs at once. KafkaJS gets no releases any more, and the one maintained client,
 * `@platformatic/kafka` 2.12, sends producer id 0 for its idempotent producer, which librdkafka's mock cluster refuses, and
 * partitions unlike Java's clients.
 */
const NAME = 'TimeoutNegativeWarning';

/** Makes Node print all warnings but this one of KafkaJS. Idempotent. */
export function silenceTimerWarning(): void {
  for (const print of process.listeners('warning')) {
    if (silenced.has(print)) continue;
    const filtered = (warning: Error): void => {
      if (!isOfKafkaJs(warning)) print(warning);
    };
    silenced.add(filtered);
    process.removeListener('warning', print);
    process.on('warning', filtered);
  }
}

const silenced = new WeakSet<object>();

function isOfKafkaJs({ name, stack = '' }: Error): boolean {
  return name === NAME && /[\\/]node_modules[\\/]kafkajs[\\/]/.test(stack);
}
