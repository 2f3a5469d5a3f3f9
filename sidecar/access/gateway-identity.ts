/**
 * Callers that a gateway in front names by `x-ra-` headers (docs/gateway.md). The gateway authenticates with its own secret as the bearer
 * token; the sidecar then checks no key, limit or credit. Without the secret it never reads these headers.
 */
import { CLASS_WEIGHTS, type ServiceClass } from '../domain/service-class.js';
import {
  bearerOf,
  type Caller,
  type Credentials,
  type Denied,
  type Identity,
  type ModelSet,
  type TraceHeaders,
  MAX_MODELS,
  MODEL_ID,
  NAME,
} from './identity.js';
import type { SecretFile } from '../lib/secret-file.js';

const NAMED = new RegExp(NAME);
const MODEL = new RegExp(MODEL_ID);

export interface GatewayOptions {
  /** The secrets that authenticate the gateway. */
  readonly secrets: Pick<SecretFile, 'has'>;
  /** This sidecar's environment; callers of another one may call nothing. */
  readonly environment: string;
  /** The service class of each account. */
  readonly class: ServiceClass;
  /** Authenticates all other callers; absent: they are refused. */
  readonly others?: Identity;
}

/** Trusts an authenticated gateway, and passes all other callers on. */
export class GatewayIdentity implements Identity {
  readonly #options: GatewayOptions;

  constructor(options: GatewayOptions) {
    this.#options = options;
  }

  resolve(credentials: Credentials, trace?: TraceHeaders): Promise<Caller | Denied> {
    const { secrets, others } = this.#options;
    const secret = bearerOf(credentials);
    if (secret !== undefined && secrets.has(secret)) return Promise.resolve(this.#named(credentials));
    return others?.resolve(credentials, trace) ?? Promise.resolve({ kind: 'denied', code: 'invalid_api_key' });
  }

  ofKey(keyId: string, account: string): Caller | Denied | undefined {
    return this.#options.others?.ofKey?.(keyId, account);
  }

  #named(credentials: Credentials): Caller | Denied {
    const account = nameIn(credentials, 'x-ra-account');
    const keyId = nameIn(credentials, 'x-ra-key-id');
    // Work without an account to charge is not done.
    if (account === undefined || keyId === undefined) {
      return { kind: 'denied', code: 'unattributed_key', known: { account, keyId } };
    }
    const { environment } = this.#options;
    const models = modelsOf(credentials.header('x-ra-models'));
    if (credentials.header('x-ra-environment') !== environment || models === undefined) {
      return { kind: 'denied', code: 'model_not_entitled', known: { account, keyId } };
    }
    const weight = CLASS_WEIGHTS[this.#options.class];
    return { kind: 'caller', account, keyId, environment, models, weight, vouched: true };
  }
}

function nameIn(credentials: Credentials, header: string): string | undefined {
  const name = credentials.header(header);
  return name !== undefined && NAMED.test(name) ? name : undefined;
}

/** Absent: all hosted models. Undefined if it is malformed, so that there is no entitlement at all. */
function modelsOf(header: string | undefined): ModelSet | undefined {
  if (header === undefined) return 'all';
  const ids = header.split(',', MAX_MODELS + 1).map((id) => id.replace(/^[ \t]+|[ \t]+$/g, ''));
  return ids.length <= MAX_MODELS && ids.every((id) => MODEL.test(id)) ? new Set(ids) : undefined;
}
