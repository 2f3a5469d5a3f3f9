import { EventEmitter, once } from 'node:events';
import { systemDisk, type Disk, type DiskFile } from '../../sidecar/usage/disk.js';

/** The machine’s disk, which delays the write of a closing record until the test releases it. */
export class HeldDisk {
  readonly #news = new EventEmitter();
  #held = false;

  /** Resolves once a write waits. */
  async holding(): Promise<void> {
    if (!this.#held) await once(this.#news, 'held');
  }

  /** The waiting write continues. */
  goOn(): void {
    this.#held = false;
    this.#news.emit('go');
  }

  readonly disk: Disk = {
    ...systemDisk,
    open: async (path, how) => this.#opened(await systemDisk.open(path, how)),
  };

  #opened(file: DiskFile): DiskFile {
    return {
      ...file,
      write: async (bytes, position) => {
        if (Buffer.from(bytes).includes('"kind":"close"')) {
          this.#held = true;
          this.#news.emit('held');
          await once(this.#news, 'go');
        }
        await file.write(bytes, position);
      },
    };
  }
}
