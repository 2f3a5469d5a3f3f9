import { EventEmitter, once } from 'node:events';
import { systemDisk, type Disk, type DiskFile } from '../../sidecar/usage/disk.js';

/** The machine’s disk, which delays the sync of a closing record until the test releases it. */
export class HeldDisk {
  readonly #news = new EventEmitter();
  #held = false;

  /** Resolves once a sync waits. */
  async holding(): Promise<void> {
    if (!this.#held) await once(this.#news, 'held');
  }

  /** The waiting sync continues. */
  goOn(): void {
    this.#held = false;
    this.#news.emit('go');
  }

  readonly disk: Disk = {
    ...systemDisk,
    open: async (path, how) => this.#opened(await systemDisk.open(path, how)),
  };

  #opened(file: DiskFile): DiskFile {
    let closes = false;
    return {
      ...file,
      write: (bytes, position) => {
        closes ||= Buffer.from(bytes).includes('"kind":"close"');
        return file.write(bytes, position);
      },
      sync: async () => {
        if (closes) {
          closes = false;
          this.#held = true;
          this.#news.emit('held');
          await once(this.#news, 'go');
        }
        await file.sync();
      },
    };
  }
}
