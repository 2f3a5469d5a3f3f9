/** Whether an object, as parsed from YAML, can be a protobuf message: its names, kinds, choices and nested messages. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import protobuf from 'protobufjs';

/** Wrappers whose JSON is the bare value. */
const WRAPPER = /^google\.protobuf\.(Bool|String|Bytes|Int32|Int64|UInt32|UInt64|Float|Double)Value$/;
const KIND_OF: Readonly<Record<string, string>> = { bool: 'boolean', string: 'string', bytes: 'string' };

/** Loads definitions, each searched in all folders. Rejects if one is missing. */
export async function protoRoot(files: readonly string[], folders: readonly string[]): Promise<protobuf.Root> {
  const root = new protobuf.Root();
  root.resolvePath = (_origin, target) =>
    folders.map((folder) => join(folder, target)).find((path) => existsSync(path)) ?? null;
  await root.load([...files], { keepCase: true });
  root.resolveAll();
  return root;
}

/** The problems, each as its path and a few words; none: it can be such a message. `seen` counts the fields. */
export class ProtoCheck {
  readonly #root: protobuf.Root;
  readonly problems: string[] = [];
  fields = 0;

  constructor(root: protobuf.Root) {
    this.#root = root;
  }

  message(name: string, value: unknown, at = '$'): void {
    const type = this.#type(name, at);
    if (type) this.#message(type, value, at);
  }

  #type(name: string, at: string): protobuf.Type | undefined {
    try {
      return this.#root.lookupType(name);
    } catch {
      this.problems.push(`${at}: no message ${name}`);
      return undefined;
    }
  }

  #message(type: protobuf.Type, value: unknown, at: string): void {
    const name = type.fullName.slice(1);
    const [, wrapped] = WRAPPER.exec(name) ?? [];
    if (wrapped !== undefined) this.#plain(wrapped.toLowerCase(), value, at);
    else if (name === 'google.protobuf.Duration') {
      if (typeof value !== 'string' || !/^\d+(\.\d{1,9})?s$/.test(value)) this.problems.push(`${at}: no duration`);
    } else if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.problems.push(`${at}: no ${name}`);
    } else if (name === 'google.protobuf.Any') {
      const { '@type': url, ...inner } = value as Record<string, unknown>;
      this.message(String(url).replace('type.googleapis.com/', ''), inner, at);
    } else this.#fields(type, value as Record<string, unknown>, at);
  }

  #fields(type: protobuf.Type, value: Readonly<Record<string, unknown>>, at: string): void {
    const choices = new Set<string>();
    for (const [name, inner] of Object.entries(value)) {
      const field = type.fields[name];
      const path = `${at}.${name}`;
      this.fields += 1;
      if (field === undefined) {
        this.problems.push(`${path}: unknown to ${type.fullName.slice(1)}`);
        continue;
      }
      if (field.options?.['deprecated'] === true) this.problems.push(`${path}: deprecated`);
      const choice = field.partOf?.name;
      if (choice !== undefined && choices.has(choice)) this.problems.push(`${path}: a second ${choice}`);
      if (choice !== undefined) choices.add(choice);
      this.#field(field, inner, path);
    }
  }

  #field(field: protobuf.Field, value: unknown, at: string): void {
    if (field.map) {
      for (const [key, inner] of Object.entries(value as object)) this.#one(field, inner, `${at}.${key}`);
    } else if (!field.repeated) this.#one(field, value, at);
    else if (!Array.isArray(value)) this.problems.push(`${at}: no list`);
    else value.forEach((inner, i) => this.#one(field, inner, `${at}.${i}`));
  }

  #one({ type, resolvedType }: protobuf.Field, value: unknown, at: string): void {
    if (resolvedType instanceof protobuf.Type) this.#message(resolvedType, value, at);
    else if (resolvedType instanceof protobuf.Enum) {
      if (!Object.keys(resolvedType.values).includes(String(value))) {
        this.problems.push(`${at}: ${String(value)} is not of ${resolvedType.name}`);
      }
    } else this.#plain(type, value, at);
  }

  #plain(type: string, value: unknown, at: string): void {
    const kind = KIND_OF[type] ?? 'number';
    if (typeof value !== kind) this.problems.push(`${at}: a ${typeof value}, no ${type}`);
  }
}
