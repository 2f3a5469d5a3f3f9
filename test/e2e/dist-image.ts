/**
 * `make dist`: the image for a CPU as an archive for `docker load`, where this host can build it; otherwise one line that says why
 * there is none. The image for a GPU needs NVIDIA’s, which is in a registry.
 *
 *     node dist/test/e2e/dist-image.js FOLDER
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv, getuid, stdout } from 'node:process';
import { ImageStore } from './image-store.js';
import { hasProgram } from './programs.js';

const [folder = 'dist/release'] = argv.slice(2);
const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { readonly version: string };

const missing = [
  ...(getuid?.() === 0 ? [] : ['root']),
  ...['buildah', 'debootstrap'].filter((name) => !hasProgram(name)),
];
if (missing.length > 0) {
  stdout.write(
    `No image was built: that needs root, buildah and debootstrap, and here is no ${missing.join(' and no ')}.\n`,
  );
} else {
  const store = new ImageStore();
  try {
    mkdirSync(folder, { recursive: true });
    const archive = join(folder, `ra-sidecar-${version}-cpu.tar`);
    store.save(store.build('cpu'), archive, `ra-sidecar:${version}-cpu`);
    // The quickest level: half of it is compressed already.
    execFileSync('gzip', ['-1', '-f', archive]);
  } finally {
    store.close();
  }
}
