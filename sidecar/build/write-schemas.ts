/** Prints what the build writes, as texts by path, for .ci/bundle.mjs: the code of the schemas' checks, and the routes' descriptions. */
import { allSchemas, writtenFiles } from './written-schemas.js';

const { module, code } = writtenFiles(await allSchemas());
// Loaded now, since they load modules with schemas.
const { openApiDocument } = await import('../api/openapi/openapi.js');
const { referencesOf } = await import('../api/public-routes.js');
const document = (contract: 'strict' | 'compatible', batch: boolean): string =>
  JSON.stringify(openApiDocument(referencesOf({ contract, batch })));
process.stdout.write(
  JSON.stringify({
    'sidecar/contracts/written-code.ts': module,
    'sidecar/contracts/written-code.txt': code,
    'sidecar/api/openapi-strict.json': document('strict', false),
    'sidecar/api/openapi-strict-batch.json': document('strict', true),
    'sidecar/api/openapi-compatible.json': document('compatible', false),
    'sidecar/api/openapi-compatible-batch.json': document('compatible', true),
  }),
);
