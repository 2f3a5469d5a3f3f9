/**
 * Images that wait to be encoded. Accounts take turns, one image each, so that an account with many images does not keep another's
 * request on its seat; the images of one account stay in order.
 */
export class WaitingImages<T> {
  /** In the order of their turns. */
  readonly #byAccount = new Map<string, T[]>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(account: string, image: T): void {
    const own = this.#byAccount.get(account) ?? [];
    own.push(image);
    this.#byAccount.set(account, own);
    this.#size += 1;
  }

  /** It does not wait any more. Idempotent. */
  remove(account: string, image: T): void {
    const own = this.#byAccount.get(account) ?? [];
    const at = own.indexOf(image);
    if (at < 0) return;
    own.splice(at, 1);
    this.#size -= 1;
    if (own.length === 0) this.#byAccount.delete(account);
  }

  /** Takes the next one. Undefined: none waits. */
  next(): T | undefined {
    for (const [account, own] of this.#byAccount) {
      const image = own.shift();
      this.#byAccount.delete(account);
      if (own.length > 0) this.#byAccount.set(account, own);
      this.#size -= 1;
      return image;
    }
    return undefined;
  }

  /** Takes all. */
  take(): T[] {
    const all = [...this.#byAccount.values()].flat();
    this.#byAccount.clear();
    this.#size = 0;
    return all;
  }
}
