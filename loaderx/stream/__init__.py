"""Stream: which rows make up which batch, in which order, and where a checkpoint continues."""
