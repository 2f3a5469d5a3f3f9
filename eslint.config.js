import tseslint from 'typescript-eslint';

const SPREAD_FIRST = {
  selector: 'ObjectExpression > SpreadElement:first-child ~ Property',
  message: 'On a hot path names come first and what is spread last: a literal that begins with a spread is slow.',
};
const SPREADS = {
  selector: 'ObjectExpression > SpreadElement:first-child ~ SpreadElement',
  message: 'On a hot path Object.assign({}, ...) joins objects: a literal of several spreads is slow.',
};
const GETTER = {
  selector: "ObjectExpression > Property[kind='get']",
  message:
    'On a hot path a literal has no getter: V8 makes a dictionary of it, which keeps ended requests in the old generation.',
};

export default tseslint.config(
  {
    ignores: [
      'dist/',
      '.cache/',
      'bench/.cache/',
      'test/e2e/.cache/',
      'node_modules/',
      '.install/',
      '.tap/',
      '.ra/',
      'coverage/',
      '.ci/',
      'test/**/*.mjs',
    ],
  },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['eslint.config.js'] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      'no-console': 'error',
      eqeqeq: 'error',
    },
  },
  {
    // What runs for each request or token. Node 20's V8 gives every object of such a literal a hidden class of
    // its own, in the old generation: 3 us and 400 bytes that only a full collection takes back.
    // Node 24 does not (bench/results/v8.md), so the rule can go when Node 20 does.
    files: [
      'sidecar/prompts/{client,host,item-queue,item-work,prompt-maker}.ts',
      'sidecar/telemetry/{http,model,queue}-metrics.ts',
      'engine/{scheduler,output}/**/!(warm-up).ts',
      'engine/llama/{batch-decoder,batch-sampler,grammars,iterator-decoder,label-scores,run}.ts',
      'engine/{main,protocol/link}.ts',
      'engine/prompt/{call-forms,chat-prompt,conversation,decision-prompt,history,jinja,role-forms,template}.ts',
      'engine/prompt/{thought-format,tokens,tool-instructions}.ts',
    ],
    rules: { 'no-restricted-syntax': ['error', SPREAD_FIRST] },
  },
  {
    // The process that all requests pass.
    files: [
      'sidecar/api/*.ts',
      'sidecar/admission/!(report).ts',
      'sidecar/http/**/*.ts',
      'sidecar/engine-client/mux.ts',
    ],
    rules: { 'no-restricted-syntax': ['error', SPREAD_FIRST, SPREADS, GETTER] },
  },
  { files: ['eslint.config.js', 'sidecar/console/page/*.js'], ...tseslint.configs.disableTypeChecked },
  {
    // tap's t.test() returns a promise that the harness owns; unbound matchers are its style.
    files: ['test/**/*.ts'],
    rules: {
      '@typescript-eslint/no-floating-promises': 'off',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
);
