/** deploy/envoy/envoy.yaml against Envoy’s own definitions. Their rules on values and dependencies are not run. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import t from 'tap';
import { ProtoCheck, protoRoot } from '../support/proto-check.js';
import { sourceRoot } from '../support/source-root.js';

const EXTENSIONS = 'envoy/extensions';
const DEFINITIONS = [
  'envoy/config/bootstrap/v3/bootstrap.proto',
  `${EXTENSIONS}/access_loggers/stream/v3/stream.proto`,
  `${EXTENSIONS}/filters/http/router/v3/router.proto`,
  `${EXTENSIONS}/filters/network/http_connection_manager/v3/http_connection_manager.proto`,
  `${EXTENSIONS}/load_balancing_policies/client_side_weighted_round_robin/v3/client_side_weighted_round_robin.proto`,
  `${EXTENSIONS}/retry/host/previous_hosts/v3/previous_hosts.proto`,
  `${EXTENSIONS}/transport_sockets/tls/v3/tls.proto`,
  `${EXTENSIONS}/upstreams/http/v3/http_protocol_options.proto`,
];

const here = createRequire(import.meta.url);
const folderOf = (name: string): string => dirname(here.resolve(`${name}/package.json`));
const api = join(folderOf('@grpc/grpc-js-xds'), 'deps');
const root = await protoRoot(DEFINITIONS, [
  ...['envoy-api', 'googleapis', 'protoc-gen-validate', 'xds'].map((name) => join(api, name)),
  folderOf('protobufjs'),
]);
const text = readFileSync(join(sourceRoot, 'deploy/envoy/envoy.yaml'), 'utf8');

function problemsOf(yaml: string): string[] {
  const check = new ProtoCheck(root);
  check.message('envoy.config.bootstrap.v3.Bootstrap', parseYaml(yaml));
  t.ok(check.fields > 100, 'every field was checked');
  return check.problems;
}

t.test('names, kinds and choices are Envoy’s, and none is deprecated', async (t) => {
  t.strictSame(problemsOf(text), []);
});
