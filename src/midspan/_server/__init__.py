"""The HTTP server: chat, runs, sessions, the OpenAI API and the stream of Vercel's AI SDK. Nobody imports it."""
