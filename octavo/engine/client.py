"""The asyncio side of an engine process."""
