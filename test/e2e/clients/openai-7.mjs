import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { openaiSteps } from './openai.mjs';

export default (given) => openaiSteps(OpenAI, { zodResponseFormat, z }, given);
