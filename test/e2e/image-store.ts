/**
 * deploy/docker/Dockerfile built by buildah, without Docker and without a registry: its base image is a Debian 13 root made by
 * debootstrap, with npm’s Node 24.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { env } from 'node:process';
import { sourceRoot } from '../support/source-root.js';
import { baseFolder } from './debian-root.js';

const NODE = '24.21.0';
const BASE = 'localhost/node24';
/** Stands for NVIDIA’s image, of which the build copies one folder. */
const CUDA_BASE = 'localhost/cuda';
/** In it, for CUDA’s libraries. */
const CUDA_LIBRARIES = 'usr/local/cuda-13.0/targets/x86_64-linux/lib';

export type Target = 'cpu' | 'cuda';

export interface ImageConfig {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Cmd: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly WorkingDir: string;
  readonly StopSignal: string;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

/** Images in a folder of their own, until it is closed. Needs root, buildah and debootstrap; each method throws if a program fails. */
export class ImageStore {
  readonly dir = mkdtempSync(join(tmpdir(), 'ra-image-'));
  #hasBases = false;

  /** Builds a target of the Dockerfile. Returns the image’s name. The libraries of CUDA are missing in that for a GPU. */
  build(target: Target): string {
    this.#makeBases();
    const name = `localhost/ra-sidecar:${target}`;
    // The Docker format, since OCI's has no health check. With layers the second target takes the first one's stages as they are.
    const how = ['--isolation', 'chroot', '--format', 'docker', '--layers', '--quiet', '--target', target];
    const bases = ['--build-arg', `NODE_IMAGE=${BASE}`, '--build-arg', `CUDA_IMAGE=${CUDA_BASE}`];
    this.#buildah('bud', ...this.#npmOfHost(), ...how, ...bases, '-f', 'deploy/docker/Dockerfile', '-t', name, '.');
    return name;
  }

  config(name: string): ImageConfig {
    const inspected = JSON.parse(this.#buildah('inspect', '--type', 'image', name)) as {
      readonly Docker: { readonly config: ImageConfig };
    };
    return inspected.Docker.config;
  }

  /** The folder with an image’s files. */
  mount(name: string): string {
    return this.#buildah('mount', this.#buildah('from', '--pull-never', name));
  }

  /** Writes an archive for `docker load`, in which the image has the name `as`. */
  save(name: string, file: string, as: string): void {
    this.#buildah('push', '--quiet', name, `docker-archive:${file}:${as}`);
  }

  close(): void {
    this.#buildah('rm', '--all');
    rmSync(this.dir, { recursive: true, force: true });
  }

  #makeBases(): void {
    if (this.#hasBases) return;
    this.#baseImage(BASE, baseFolder(NODE));
    const cuda = join(this.dir, 'cuda');
    mkdirSync(join(cuda, CUDA_LIBRARIES), { recursive: true });
    writeFileSync(join(cuda, CUDA_LIBRARIES, 'README'), 'for the libraries of CUDA\n');
    this.#baseImage(CUDA_BASE, cuda);
    this.#hasBases = true;
  }

  /** An image with a folder’s files alone. */
  #baseImage(name: string, folder: string): void {
    const empty = this.#buildah('from', 'scratch');
    this.#buildah('copy', '--quiet', empty, folder, '/');
    this.#buildah('commit', '--quiet', empty, name);
  }

  /** Mounts for npm in the build: this host's cache, and the certificate of a registry that this host was told to trust. */
  #npmOfHost(): readonly string[] {
    const cache = execFileSync('npm', ['config', 'get', 'cache'], { encoding: 'utf8' }).trim();
    const trusted = env['NODE_EXTRA_CA_CERTS'];
    if (trusted === undefined) return ['-v', `${cache}:/root/.npm`];
    const npmrc = join(this.dir, 'npmrc');
    writeFileSync(npmrc, 'cafile=/etc/npm-trusted.pem\n');
    return [
      '-v',
      `${cache}:/root/.npm`,
      '-v',
      `${trusted}:/etc/npm-trusted.pem`,
      '-v',
      `${npmrc}:/usr/local/etc/npmrc`,
    ];
  }

  #buildah(...args: readonly string[]): string {
    const storage = [
      '--root',
      join(this.dir, 'root'),
      '--runroot',
      join(this.dir, 'run'),
      '--storage-driver',
      'overlay',
    ];
    const options = { cwd: sourceRoot, encoding: 'utf8', stdio: 'pipe', maxBuffer: 1 << 26 } as const;
    return execFileSync('buildah', [...storage, ...args], options).trim();
  }
}
