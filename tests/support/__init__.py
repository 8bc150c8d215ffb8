"""What several test files share: builders of models, oracles, backends for tests, case tables."""
