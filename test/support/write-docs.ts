/** `make docs`: writes what is generated from the code. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cliDocs } from '../../sidecar/commands/help.js';
import { configDocs } from '../../sidecar/config/docs.js';
import { apiDocs } from '../../sidecar/reference/api-docs.js';
import { errorDocs } from '../../sidecar/reference/error-docs.js';
import { sourceRoot } from './source-root.js';

mkdirSync(`${sourceRoot}/docs`, { recursive: true });
writeFileSync(`${sourceRoot}/docs/config.md`, configDocs());
writeFileSync(`${sourceRoot}/docs/errors.md`, errorDocs());
writeFileSync(`${sourceRoot}/docs/api.md`, apiDocs());
writeFileSync(`${sourceRoot}/docs/cli.md`, cliDocs());
