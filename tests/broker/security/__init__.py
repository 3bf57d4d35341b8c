"""The security of the connection, on a real Kafka: credentials, certificates, rights, sessions that
end.
"""
