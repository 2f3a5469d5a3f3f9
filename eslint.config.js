import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/', 'bench/.cache/', 'node_modules/', '.tap/', '.ra/', 'coverage/', '.ci/'] },
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
