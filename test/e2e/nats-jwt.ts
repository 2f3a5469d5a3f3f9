/**
 * Creates what NATS’ own tools create for a server with accounts: an operator, accounts and a user, each signed by the
 * one above.
 */
import { nkeys } from '@nats-io/transport-node';

type KeyPair = ReturnType<typeof nkeys.createUser>;

export interface NatsAccounts {
  /** Sections of a server’s configuration file. */
  readonly config: string;
  /** A user's creds file. */
  readonly creds: string;
}

const PLAIN = {
  subs: -1,
  data: -1,
  payload: -1,
  imports: -1,
  exports: -1,
  wildcards: true,
  conn: -1,
  leaf: -1,
};

/** With JetStream, which the system account must not have. */
const UNLIMITED = { ...PLAIN, mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };

export function makeAccounts(): NatsAccounts {
  const [operator, system, account, user] = [
    nkeys.createOperator(),
    nkeys.createAccount(),
    nkeys.createAccount(),
    nkeys.createUser(),
  ] as const;
  const accountJwt = (of: KeyPair, name: string, limits: object): string =>
    token(of, operator, name, { type: 'account', limits, default_permissions: { pub: {}, sub: {} } });
  const users = { type: 'user', pub: {}, sub: {}, subs: -1, data: -1, payload: -1 };
  const preload = [
    `${system.getPublicKey()}: ${accountJwt(system, 'SYS', PLAIN)}`,
    `${account.getPublicKey()}: ${accountJwt(account, 'BILLING', UNLIMITED)}`,
  ];
  return {
    config: [
      `operator: ${token(operator, operator, 'OP', { type: 'operator' })}`,
      `system_account: ${system.getPublicKey()}`,
      'resolver: MEMORY',
      `resolver_preload: { ${preload.join(', ')} }`,
    ].join('\n'),
    creds: [
      '-----BEGIN NATS USER JWT-----',
      token(user, account, 'edge', users),
      '------END NATS USER JWT------',
      '',
      '-----BEGIN USER NKEY SEED-----',
      new TextDecoder().decode(user.getSeed()),
      '------END USER NKEY SEED------',
      '',
    ].join('\n'),
  };
}

/** A signed claim about `subject`. */
function token(subject: KeyPair, issuer: KeyPair, name: string, claims: object): string {
  const part = (value: object | Uint8Array): string =>
    Buffer.from(value instanceof Uint8Array ? value : JSON.stringify(value)).toString('base64url');
  const body = {
    jti: subject.getPublicKey(),
    iat: Math.floor(Date.now() / 1000),
    iss: issuer.getPublicKey(),
    name,
    sub: subject.getPublicKey(),
    nats: { ...claims, version: 2 },
  };
  const signed = `${part({ typ: 'JWT', alg: 'ed25519-nkey' })}.${part(body)}`;
  return `${signed}.${part(issuer.sign(new TextEncoder().encode(signed)))}`;
}
