"""The other control plane: membership and controller election in ZooKeeper, metadata pushed to brokers."""
