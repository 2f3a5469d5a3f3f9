/**
 * Whether brokers acknowledged all partitions of a batch. KafkaJS 2.2.4 does not show it: within one `send` it sends
 * nothing more to a broker that has answered. If one broker stores its part, another fails, and the first one leads the
 * other's partition by the next attempt, then KafkaJS sends the events of that partition to no broker, and `send` resolves
 * (tulios/kafkajs, pull request 1798). The partitions that it resolves with lack that one.
 */

/** What a partitioner is asked with. */
interface Asked {
  readonly partitionMetadata: readonly unknown[];
}

/** The partitions of one batch at a time. */
export class BatchPartitions {
  readonly #chosen = new Set<number>();
  /** How many partitions the topic had at each choice. */
  readonly #counts = new Set<number>();

  /** Before a batch is sent. */
  begin(): void {
    this.#chosen.clear();
    this.#counts.clear();
  }

  /** A partitioner that chooses as `create`'s does, and notes the choice. */
  noting<A extends Asked>(create: () => (asked: A) => number): () => (asked: A) => number {
    return () => {
      const choose = create();
      return (asked) => {
        const partition = choose(asked);
        this.#chosen.add(partition);
        this.#counts.add(asked.partitionMetadata.length);
        return partition;
      };
    };
  }

  /**
   * Whether all of the batch is in the partitions that brokers acknowledged. Not if partitions were added to the topic
   * between two attempts: then one partition has other events in each, and its acknowledgement may be of the first.
   */
  areAllIn(acknowledged: readonly { readonly partition: number }[]): boolean {
    const known = new Set(acknowledged.map(({ partition }) => partition));
    return this.#counts.size <= 1 && [...this.#chosen].every((partition) => known.has(partition));
  }
}
